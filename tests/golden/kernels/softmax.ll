; 1: row
define internal void @body(i64 %n1, ptr noalias %p0, ptr noalias %p1, i64 %s0_1, i64 %s1_1, i64 %c0, ptr noalias %w5) nounwind noinline {
entry:
  %s1 = alloca float, i64 1
  %s11 = alloca float, i64 1
  %s15 = alloca float, i64 1
  store float 0xFFF0000000000000, ptr %s1
  %v3 = icmp slt i64 0, %n1
  br i1 %v3, label %body2, label %done2
body2:
  %i2 = phi i64 [ 0, %entry ], [ %v8, %body2 ]
  %v4 = getelementptr inbounds float, ptr %p0, i64 %i2
  %v5 = load float, ptr %v4, align 4
  %v6 = load float, ptr %s1
  %v7 = call nsz float @llvm.maximum.f32(float %v6, float %v5)
  store float %v7, ptr %s1
  %v8 = add nuw nsw i64 %i2, 1
  %v9 = icmp slt i64 %v8, %n1
  br i1 %v9, label %body2, label %done2, !llvm.loop !0
done2:
  %v10 = load float, ptr %s1
  store float 0x8000000000000000, ptr %s11
  %v12 = trunc i64 %c0 to i32
  %v13 = bitcast i32 %v12 to float
  %v14 = call float @llvm.maximum.f32(float %v13, float %v10)
  store float 0x8000000000000000, ptr %s15
  %v17 = icmp slt i64 0, %n1
  br i1 %v17, label %body16, label %done16
body16:
  %i16 = phi i64 [ 0, %done2 ], [ %v58, %done20 ]
  store float 0x8000000000000000, ptr %s15
  %v18 = add nsw i64 %i16, 256
  %v19 = call i64 @llvm.smin.i64(i64 %v18, i64 %n1)
  %v21 = icmp slt i64 %i16, %v19
  br i1 %v21, label %body20, label %done20
body20:
  %i20 = phi i64 [ %i16, %body16 ], [ %v53, %body20 ]
  %v22 = getelementptr inbounds float, ptr %p0, i64 %i20
  %v23 = load float, ptr %v22, align 4
  %v24 = fsub float %v23, %v14
  %v25 = call float @llvm.maximum.f32(float %v24, float 0xC05A000000000000)
  %v26 = call float @llvm.minimum.f32(float %v25, float 0x40562E4300000000)
  %v27 = call float @llvm.fma.f32(float %v26, float 0x3FF7154760000000, float 0x4168000000000000)
  %v28 = fsub float %v27, 0x4168000000000000
  %v29 = bitcast float %v27 to i32
  %v30 = call float @llvm.fma.f32(float %v28, float 0xBFE62E4000000000, float %v26)
  %v31 = call float @llvm.fma.f32(float %v28, float 0xBEB7F7D1C0000000, float %v30)
  %v32 = fmul float %v31, %v31
  %v33 = fmul float %v31, %v31
  %v34 = call float @llvm.fma.f32(float 0x3F8123B820000000, float %v31, float 0x3FA5558E60000000)
  %v35 = call float @llvm.fma.f32(float 0x3F56A36720000000, float %v33, float %v34)
  %v36 = call float @llvm.fma.f32(float 0x3FC5554900000000, float %v31, float 0x3FDFFFFFC0000000)
  %v37 = call float @llvm.fma.f32(float %v35, float %v33, float %v36)
  %v38 = call float @llvm.fma.f32(float %v32, float %v37, float %v31)
  %v39 = fadd float %v38, 0x3FF0000000000000
  %v40 = fcmp olt float %v24, 0x0000000000000000
  %v41 = select i1 %v40, i32 1602224128, i32 1056964608
  %v42 = shl i32 %v29, 23
  %v43 = add i32 %v42, %v41
  %v44 = bitcast i32 %v43 to float
  %v45 = select i1 %v40, float 0x3BF0000000000000, float 0x4000000000000000
  %v46 = fmul float %v39, %v44
  %v47 = fmul float %v46, %v45
  %v48 = fcmp ogt float %v24, 0x40562E4300000000
  %v49 = select i1 %v48, float 0x7FF0000000000000, float %v47
  %v50 = getelementptr inbounds float, ptr %w5, i64 %i20
  store float %v49, ptr %v50, align 4
  %v51 = load float, ptr %s15
  %v52 = fadd reassoc float %v51, %v49
  store float %v52, ptr %s15
  %v53 = add nuw nsw i64 %i20, 1
  %v54 = icmp slt i64 %v53, %v19
  br i1 %v54, label %body20, label %done20, !llvm.loop !3
done20:
  %v55 = load float, ptr %s11
  %v56 = load float, ptr %s15
  %v57 = fadd float %v55, %v56
  store float %v57, ptr %s11
  %v58 = add nuw nsw i64 %i16, 256
  %v59 = icmp slt i64 %v58, %n1
  br i1 %v59, label %body16, label %done16
done16:
  %v60 = load float, ptr %s11
  %v62 = icmp slt i64 0, %n1
  br i1 %v62, label %body61, label %done61
body61:
  %i61 = phi i64 [ 0, %done16 ], [ %v75, %body61 ]
  %v63 = getelementptr inbounds float, ptr %w5, i64 %i61
  %v64 = load float, ptr %v63, align 4
  %v65 = call float @llvm.fabs.f32(float %v60)
  %v66 = fcmp olt float %v65, 0x3810000000000000
  %v67 = select i1 %v66, float 0x43F0000000000000, float 0x3FF0000000000000
  %v68 = fcmp ogt float %v65, 0x47D0000000000000
  %v69 = select i1 %v68, float 0x3BF0000000000000, float %v67
  %v70 = fmul float %v64, %v69
  %v71 = fmul float %v60, %v69
  %v72 = fdiv float 0x3FF0000000000000, %v71
  %v73 = fmul float %v70, %v72
  %v74 = getelementptr inbounds float, ptr %p1, i64 %i61
  store float %v73, ptr %v74, align 4
  %v75 = add nuw nsw i64 %i61, 1
  %v76 = icmp slt i64 %v75, %n1
  br i1 %v76, label %body61, label %done61, !llvm.loop !6
done61:
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
  %s28 = alloca float, i64 %v3, align 64
  %v30 = icmp slt i64 %lo, %hi
  br i1 %v30, label %body29, label %done29
body29:
  %i29 = phi i64 [ %lo, %entry ], [ %v35, %body29 ]
  %v31 = mul nsw i64 %i29, %v12
  %v32 = getelementptr i8, ptr %v10, i64 %v31
  %v33 = mul nsw i64 %i29, %v23
  %v34 = getelementptr i8, ptr %v21, i64 %v33
  call void @body(i64 %v3, ptr %v32, ptr %v34, i64 %v14, i64 %v25, i64 %v27, ptr %s28)
  %v35 = add nuw nsw i64 %i29, 1
  %v36 = icmp slt i64 %v35, %hi
  br i1 %v36, label %body29, label %done29
done29:
  ret void
}
