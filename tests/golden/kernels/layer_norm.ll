; 1: row
define internal void @body(i64 %n1, ptr noalias %p0, ptr noalias %p1, ptr noalias %p2, ptr noalias %p3, i64 %s0_1, i64 %s1_1, i64 %s2_1, i64 %s3_1, i64 %c0, i64 %c1) nounwind noinline {
entry:
  %s1 = alloca float, i64 1
  %s2 = alloca float, i64 1
  %s21 = alloca float, i64 1
  %s25 = alloca float, i64 1
  store float 0x8000000000000000, ptr %s1
  store float 0x8000000000000000, ptr %s2
  %v4 = icmp slt i64 0, %n1
  br i1 %v4, label %body3, label %done3
body3:
  %i3 = phi i64 [ 0, %entry ], [ %v18, %done7 ]
  store float 0x8000000000000000, ptr %s2
  %v5 = add nsw i64 %i3, 256
  %v6 = call i64 @llvm.smin.i64(i64 %v5, i64 %n1)
  %v8 = icmp slt i64 %i3, %v6
  br i1 %v8, label %body7, label %done7
body7:
  %i7 = phi i64 [ %i3, %body3 ], [ %v13, %body7 ]
  %v9 = getelementptr inbounds float, ptr %p0, i64 %i7
  %v10 = load float, ptr %v9, align 4
  %v11 = load float, ptr %s2
  %v12 = fadd reassoc float %v11, %v10
  store float %v12, ptr %s2
  %v13 = add nuw nsw i64 %i7, 1
  %v14 = icmp slt i64 %v13, %v6
  br i1 %v14, label %body7, label %done7, !llvm.loop !0
done7:
  %v15 = load float, ptr %s1
  %v16 = load float, ptr %s2
  %v17 = fadd float %v15, %v16
  store float %v17, ptr %s1
  %v18 = add nuw nsw i64 %i3, 256
  %v19 = icmp slt i64 %v18, %n1
  br i1 %v19, label %body3, label %done3
done3:
  %v20 = load float, ptr %s1
  store float 0x8000000000000000, ptr %s21
  %v22 = trunc i64 %c0 to i32
  %v23 = bitcast i32 %v22 to float
  %v24 = fdiv float %v20, %v23
  store float 0x8000000000000000, ptr %s25
  %v27 = icmp slt i64 0, %n1
  br i1 %v27, label %body26, label %done26
body26:
  %i26 = phi i64 [ 0, %done3 ], [ %v43, %done30 ]
  store float 0x8000000000000000, ptr %s25
  %v28 = add nsw i64 %i26, 256
  %v29 = call i64 @llvm.smin.i64(i64 %v28, i64 %n1)
  %v31 = icmp slt i64 %i26, %v29
  br i1 %v31, label %body30, label %done30
body30:
  %i30 = phi i64 [ %i26, %body26 ], [ %v38, %body30 ]
  %v32 = getelementptr inbounds float, ptr %p0, i64 %i30
  %v33 = load float, ptr %v32, align 4
  %v34 = fsub float %v33, %v24
  %v35 = fmul float %v34, %v34
  %v36 = load float, ptr %s25
  %v37 = fadd reassoc float %v36, %v35
  store float %v37, ptr %s25
  %v38 = add nuw nsw i64 %i30, 1
  %v39 = icmp slt i64 %v38, %v29
  br i1 %v39, label %body30, label %done30, !llvm.loop !3
done30:
  %v40 = load float, ptr %s21
  %v41 = load float, ptr %s25
  %v42 = fadd float %v40, %v41
  store float %v42, ptr %s21
  %v43 = add nuw nsw i64 %i26, 256
  %v44 = icmp slt i64 %v43, %n1
  br i1 %v44, label %body26, label %done26
done26:
  %v45 = load float, ptr %s21
  %v46 = fdiv float %v45, %v23
  %v47 = trunc i64 %c1 to i32
  %v48 = bitcast i32 %v47 to float
  %v49 = fadd float %v46, %v48
  %v50 = call float @llvm.sqrt.f32(float %v49)
  %v51 = fdiv float 0x3FF0000000000000, %v50
  %v53 = icmp slt i64 0, %n1
  br i1 %v53, label %body52, label %done52
body52:
  %i52 = phi i64 [ 0, %done26 ], [ %v65, %body52 ]
  %v54 = getelementptr inbounds float, ptr %p0, i64 %i52
  %v55 = load float, ptr %v54, align 4
  %v56 = fsub float %v55, %v24
  %v57 = fmul float %v56, %v51
  %v58 = getelementptr inbounds float, ptr %p1, i64 %i52
  %v59 = load float, ptr %v58, align 4
  %v60 = fmul float %v57, %v59
  %v61 = getelementptr inbounds float, ptr %p2, i64 %i52
  %v62 = load float, ptr %v61, align 4
  %v63 = fadd float %v60, %v62
  %v64 = getelementptr inbounds float, ptr %p3, i64 %i52
  store float %v63, ptr %v64, align 4
  %v65 = add nuw nsw i64 %i52, 1
  %v66 = icmp slt i64 %v65, %n1
  br i1 %v66, label %body52, label %done52, !llvm.loop !6
done52:
  ret void
}
!0 = distinct !{!0, !1, !2}
!1 = !{!"llvm.loop.vectorize.enable", i1 true}
!2 = !{!"llvm.loop.interleave.count", i32 4}
!3 = distinct !{!3, !4, !5}
!4 = !{!"llvm.loop.vectorize.enable", i1 true}
!5 = !{!"llvm.loop.interleave.count", i32 4}
!6 = distinct !{!6, !7, !8}
!7 = !{!"llvm.loop.vectorize.enable", i1 true}
!8 = !{!"llvm.loop.interleave.count", i32 4}
define void @kernel(i64 %lo, i64 %hi, ptr noalias %args, ptr noalias %buffers) nounwind {
entry:
  %v1 = load i64, ptr %args, align 8
  %v2 = getelementptr inbounds i64, ptr %args, i64 1
  %v3 = load i64, ptr %v2, align 8
  %v4 = getelementptr inbounds i64, ptr %args, i64 2
  %v5 = load i64, ptr %v4, align 8
  %v6 = getelementptr inbounds ptr, ptr %buffers, i64 %v5
  %v7 = load ptr, ptr %v6, align 8
  %v8 = getelementptr inbounds i64, ptr %args, i64 3
  %v9 = load i64, ptr %v8, align 8
  %v10 = getelementptr i8, ptr %v7, i64 %v9
  %v11 = getelementptr inbounds i64, ptr %args, i64 4
  %v12 = load i64, ptr %v11, align 8
  %v13 = getelementptr inbounds i64, ptr %args, i64 5
  %v14 = load i64, ptr %v13, align 8
  %v15 = getelementptr inbounds i64, ptr %args, i64 6
  %v16 = load i64, ptr %v15, align 8
  %v17 = getelementptr inbounds ptr, ptr %buffers, i64 %v16
  %v18 = load ptr, ptr %v17, align 8
  %v19 = getelementptr inbounds i64, ptr %args, i64 7
  %v20 = load i64, ptr %v19, align 8
  %v21 = getelementptr i8, ptr %v18, i64 %v20
  %v22 = getelementptr inbounds i64, ptr %args, i64 8
  %v23 = load i64, ptr %v22, align 8
  %v24 = getelementptr inbounds i64, ptr %args, i64 9
  %v25 = load i64, ptr %v24, align 8
  %v26 = getelementptr inbounds i64, ptr %args, i64 10
  %v27 = load i64, ptr %v26, align 8
  %v28 = getelementptr inbounds ptr, ptr %buffers, i64 %v27
  %v29 = load ptr, ptr %v28, align 8
  %v30 = getelementptr inbounds i64, ptr %args, i64 11
  %v31 = load i64, ptr %v30, align 8
  %v32 = getelementptr i8, ptr %v29, i64 %v31
  %v33 = getelementptr inbounds i64, ptr %args, i64 12
  %v34 = load i64, ptr %v33, align 8
  %v35 = getelementptr inbounds i64, ptr %args, i64 13
  %v36 = load i64, ptr %v35, align 8
  %v37 = getelementptr inbounds i64, ptr %args, i64 14
  %v38 = load i64, ptr %v37, align 8
  %v39 = getelementptr inbounds ptr, ptr %buffers, i64 %v38
  %v40 = load ptr, ptr %v39, align 8
  %v41 = getelementptr inbounds i64, ptr %args, i64 15
  %v42 = load i64, ptr %v41, align 8
  %v43 = getelementptr i8, ptr %v40, i64 %v42
  %v44 = getelementptr inbounds i64, ptr %args, i64 16
  %v45 = load i64, ptr %v44, align 8
  %v46 = getelementptr inbounds i64, ptr %args, i64 17
  %v47 = load i64, ptr %v46, align 8
  %v48 = getelementptr inbounds i64, ptr %args, i64 18
  %v49 = load i64, ptr %v48, align 8
  %v50 = getelementptr inbounds i64, ptr %args, i64 19
  %v51 = load i64, ptr %v50, align 8
  %v53 = icmp slt i64 %lo, %hi
  br i1 %v53, label %body52, label %done52
body52:
  %i52 = phi i64 [ %lo, %entry ], [ %v62, %body52 ]
  %v54 = mul nsw i64 %i52, %v12
  %v55 = getelementptr i8, ptr %v10, i64 %v54
  %v56 = mul nsw i64 %i52, %v23
  %v57 = getelementptr i8, ptr %v21, i64 %v56
  %v58 = mul nsw i64 %i52, %v34
  %v59 = getelementptr i8, ptr %v32, i64 %v58
  %v60 = mul nsw i64 %i52, %v45
  %v61 = getelementptr i8, ptr %v43, i64 %v60
  call void @body(i64 %v3, ptr %v55, ptr %v57, ptr %v59, ptr %v61, i64 %v14, i64 %v25, i64 %v36, i64 %v47, i64 %v49, i64 %v51)
  %v62 = add nuw nsw i64 %i52, 1
  %v63 = icmp slt i64 %v62, %hi
  br i1 %v63, label %body52, label %done52
done52:
  ret void
}
