; 1: row
define internal void @body(i64 %n1, ptr noalias %p0, ptr noalias %p1, i64 %s0_1, i64 %s1_1, i64 %c0, i64 %c1, i64 %x0, i64 %x1, ptr noalias %w10) nounwind noinline {
entry:
  %s1 = alloca float, i64 1
  %s18 = alloca float, i64 1
  %s22 = alloca float, i64 1
  store float 0xFFF0000000000000, ptr %s1
  %v2 = trunc i64 %x0 to i32
  %v3 = trunc i64 %c0 to i32
  %v4 = bitcast i32 %v3 to float
  %v6 = icmp slt i64 0, %n1
  br i1 %v6, label %body5, label %done5
body5:
  %i5 = phi i64 [ 0, %entry ], [ %v15, %body5 ]
  %v7 = add nsw i64 %x1, %i5
  %v8 = trunc i64 %v7 to i32
  %v9 = icmp sle i32 %v8, %v2
  %v10 = getelementptr inbounds float, ptr %p0, i64 %i5
  %v11 = load float, ptr %v10, align 4
  %v12 = select i1 %v9, float %v11, float %v4
  %v13 = load float, ptr %s1
  %v14 = call float @llvm.maximum.f32(float %v13, float %v12)
  store float %v14, ptr %s1
  %v15 = add nuw nsw i64 %i5, 1
  %v16 = icmp slt i64 %v15, %n1
  br i1 %v16, label %body5, label %done5, !llvm.loop !0
done5:
  %v17 = load float, ptr %s1
  store float 0x8000000000000000, ptr %s18
  %v19 = trunc i64 %c1 to i32
  %v20 = bitcast i32 %v19 to float
  %v21 = call float @llvm.maximum.f32(float %v20, float %v17)
  store float 0x8000000000000000, ptr %s22
  %v24 = icmp slt i64 0, %n1
  br i1 %v24, label %body23, label %done23
body23:
  %i23 = phi i64 [ 0, %done5 ], [ %v69, %done27 ]
  store float 0x8000000000000000, ptr %s22
  %v25 = add nsw i64 %i23, 256
  %v26 = call i64 @llvm.smin.i64(i64 %v25, i64 %n1)
  %v28 = icmp slt i64 %i23, %v26
  br i1 %v28, label %body27, label %done27
body27:
  %i27 = phi i64 [ %i23, %body23 ], [ %v64, %body27 ]
  %v29 = add nsw i64 %x1, %i27
  %v30 = trunc i64 %v29 to i32
  %v31 = icmp sle i32 %v30, %v2
  %v32 = getelementptr inbounds float, ptr %p0, i64 %i27
  %v33 = load float, ptr %v32, align 4
  %v34 = select i1 %v31, float %v33, float %v4
  %v35 = fsub float %v34, %v21
  %v36 = call float @llvm.maximum.f32(float %v35, float 0xC05A000000000000)
  %v37 = call float @llvm.minimum.f32(float %v36, float 0x40562E4300000000)
  %v38 = call float @llvm.fma.f32(float %v37, float 0x3FF7154760000000, float 0x4168000000000000)
  %v39 = fsub float %v38, 0x4168000000000000
  %v40 = bitcast float %v38 to i32
  %v41 = call float @llvm.fma.f32(float %v39, float 0xBFE62E4000000000, float %v37)
  %v42 = call float @llvm.fma.f32(float %v39, float 0xBEB7F7D1C0000000, float %v41)
  %v43 = fmul float %v42, %v42
  %v44 = fmul float %v42, %v42
  %v45 = call float @llvm.fma.f32(float 0x3F8123B820000000, float %v42, float 0x3FA5558E60000000)
  %v46 = call float @llvm.fma.f32(float 0x3F56A36720000000, float %v44, float %v45)
  %v47 = call float @llvm.fma.f32(float 0x3FC5554900000000, float %v42, float 0x3FDFFFFFC0000000)
  %v48 = call float @llvm.fma.f32(float %v46, float %v44, float %v47)
  %v49 = call float @llvm.fma.f32(float %v43, float %v48, float %v42)
  %v50 = fadd float %v49, 0x3FF0000000000000
  %v51 = fcmp olt float %v35, 0x0000000000000000
  %v52 = select i1 %v51, i32 1602224128, i32 1056964608
  %v53 = shl i32 %v40, 23
  %v54 = add i32 %v53, %v52
  %v55 = bitcast i32 %v54 to float
  %v56 = select i1 %v51, float 0x3BF0000000000000, float 0x4000000000000000
  %v57 = fmul float %v50, %v55
  %v58 = fmul float %v57, %v56
  %v59 = fcmp ogt float %v35, 0x40562E4300000000
  %v60 = select i1 %v59, float 0x7FF0000000000000, float %v58
  %v61 = getelementptr inbounds float, ptr %w10, i64 %i27
  store float %v60, ptr %v61, align 4
  %v62 = load float, ptr %s22
  %v63 = fadd reassoc float %v62, %v60
  store float %v63, ptr %s22
  %v64 = add nuw nsw i64 %i27, 1
  %v65 = icmp slt i64 %v64, %v26
  br i1 %v65, label %body27, label %done27, !llvm.loop !3
done27:
  %v66 = load float, ptr %s18
  %v67 = load float, ptr %s22
  %v68 = fadd float %v66, %v67
  store float %v68, ptr %s18
  %v69 = add nuw nsw i64 %i23, 256
  %v70 = icmp slt i64 %v69, %n1
  br i1 %v70, label %body23, label %done23
done23:
  %v71 = load float, ptr %s18
  %v73 = icmp slt i64 0, %n1
  br i1 %v73, label %body72, label %done72
body72:
  %i72 = phi i64 [ 0, %done23 ], [ %v78, %body72 ]
  %v74 = getelementptr inbounds float, ptr %w10, i64 %i72
  %v75 = load float, ptr %v74, align 4
  %v76 = fdiv float %v75, %v71
  %v77 = getelementptr inbounds float, ptr %p1, i64 %i72
  store float %v76, ptr %v77, align 4
  %v78 = add nuw nsw i64 %i72, 1
  %v79 = icmp slt i64 %v78, %n1
  br i1 %v79, label %body72, label %done72, !llvm.loop !6
done72:
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
  %v28 = getelementptr inbounds i64, ptr %args, i64 11
  %v29 = load i64, ptr %v28, align 8
  %s30 = alloca float, i64 %v3, align 64
  %v32 = icmp slt i64 %lo, %hi
  br i1 %v32, label %body31, label %done31
body31:
  %i31 = phi i64 [ %lo, %entry ], [ %v37, %body31 ]
  %v33 = mul nsw i64 %i31, %v12
  %v34 = getelementptr i8, ptr %v10, i64 %v33
  %v35 = mul nsw i64 %i31, %v23
  %v36 = getelementptr i8, ptr %v21, i64 %v35
  call void @body(i64 %v3, ptr %v34, ptr %v36, i64 %v14, i64 %v25, i64 %v27, i64 %v29, i64 %i31, i64 0, ptr %s30)
  %v37 = add nuw nsw i64 %i31, 1
  %v38 = icmp slt i64 %v37, %hi
  br i1 %v38, label %body31, label %done31
done31:
  ret void
}
